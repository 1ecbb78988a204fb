"""`gem-ma view`: run folders in a browser. The pages are those of `gem_ma.pages.static`; here
stands what a file on a disk cannot do: all episodes of a run, each read when it is opened, and a
run that is still being played."""
