"""MySQL and MariaDB as captured databases."""
