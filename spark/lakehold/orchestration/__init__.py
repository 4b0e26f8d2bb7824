"""The only part of lakehold that imports Airflow: the tasks of `dags/`. Importing it starts no engine and reads no lake."""
