"""Schedules of the DAGs that no change of a table starts."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Schedules(BaseSettings):
    """The schedules as Airflow takes them: cron expressions or presets such as `@continuous`; empty: only when triggered.

    Each is an environment variable of the processes that parse DAG files: `LAKEHOLD_INGEST_SCHEDULE`, `LAKEHOLD_HOLDS_SCHEDULE`,
    `LAKEHOLD_MAINTENANCE_SCHEDULE`.
    """

    model_config = SettingsConfigDict(env_prefix="LAKEHOLD_", frozen=True)

    ingest_schedule: str | None = Field(default="* * * * *")
    holds_schedule: str | None = Field(default="*/5 * * * *")
    maintenance_schedule: str | None = Field(default="30 2 * * *")

    @field_validator("*")
    @classmethod
    def _empty_is_none(cls, value: str | None) -> str | None:
        return value or None


SCHEDULES = Schedules()
