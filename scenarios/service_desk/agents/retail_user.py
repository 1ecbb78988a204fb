"""The scripted customer of the shop."""

from __future__ import annotations

from gem_ma.scenarios.service_desk.agents.customer import Customer
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL


class RetailUser(Customer):
    """Speaks retail's words; all else is the customer's of any desk."""

    phrasebook = RETAIL
    scenario = "retail"
