-- plain: created
CREATE TABLE plain (id int PRIMARY KEY, touched int, note text);
ALTER TABLE plain REPLICA IDENTITY FULL;
INSERT INTO plain SELECT i, 0, 'note ' || i FROM generate_series(1, 20) i;
----
equal

-- names: created
CREATE TABLE names (id int PRIMARY KEY, touched int, a int, b int);
ALTER TABLE names REPLICA IDENTITY FULL;
INSERT INTO names SELECT i, 0, i, -i FROM generate_series(1, 20) i;
----
equal

-- plain: a column is added
ALTER TABLE plain ADD c int;
----
equal

-- names: two columns swap their names
BEGIN;
ALTER TABLE names RENAME a TO x;
ALTER TABLE names RENAME b TO a;
ALTER TABLE names RENAME x TO b;
COMMIT;
----
equal
