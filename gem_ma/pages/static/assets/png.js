// A chart as a picture: the page draws its own SVG, so that no server needs a library for it.
const png = document.getElementById("png"), svgLink = document.querySelector("a.svg");
if (png && svgLink) {
  png.hidden = false;
  png.addEventListener("click", async () => {
    const source = await (await fetch(svgLink.href)).text();
    const image = new Image();
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(source);
    await image.decode();
    const canvas = document.createElement("canvas"), fine = 2;  // pixels a pixel: sharp in print
    canvas.width = image.naturalWidth * fine;
    canvas.height = image.naturalHeight * fine;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    const link = document.createElement("a");
    link.href = canvas.toDataURL("image/png");
    link.download = "plot.png";
    link.click();
  });
}
