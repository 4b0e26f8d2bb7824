"""The one seam to Airflow: what the files in `dags/` are made of. Importing it starts no engine and reads no lake."""
