-- added: created
CREATE TABLE added (id INT PRIMARY KEY, touched INT, note VARCHAR(20));
INSERT INTO added SELECT seq, 0, CONCAT('note ', seq) FROM seq_1_to_20;
----
equal

-- dropped: created
CREATE TABLE dropped (id INT PRIMARY KEY, touched INT, n INT, a INT, b INT, note VARCHAR(20));
INSERT INTO dropped SELECT seq, 0, seq, seq * 10, seq * 100, CONCAT('note ', seq) FROM seq_1_to_20;
----
equal

-- typed: created
CREATE TABLE typed (id INT PRIMARY KEY, touched INT, n INT, word VARCHAR(10), price DECIMAL(8, 2), at DATETIME, u INT,
  kind ENUM('a', 'b'), flags SET('x', 'y'), maybe INT) CHARSET utf8mb4;
INSERT INTO typed SELECT seq, 0, seq, 'word', seq + 0.25, '2026-11-26 10:00:00', seq, 'b', 'x,y', NULL FROM seq_1_to_20;
----
equal

-- latin: created
CREATE TABLE latin (id INT PRIMARY KEY, touched INT, word VARCHAR(10)) CHARSET latin1;
INSERT INTO latin SELECT seq, 0, 'Köln' FROM seq_1_to_20;
----
equal

-- keyed: created
CREATE TABLE keyed (id INT PRIMARY KEY, touched INT, part INT NOT NULL DEFAULT 1);
INSERT INTO keyed SELECT seq, 0, seq MOD 3 FROM seq_1_to_20;
----
equal

-- whole: created
CREATE TABLE whole (id INT PRIMARY KEY, touched INT, note VARCHAR(20));
INSERT INTO whole SELECT seq, 0, 'first' FROM seq_1_to_20;
----
equal

-- parts: created
CREATE TABLE parts (id INT PRIMARY KEY, touched INT, note VARCHAR(20)) PARTITION BY RANGE (id)
  (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN (10), PARTITION p2 VALUES LESS THAN (15),
   PARTITION p3 VALUES LESS THAN (1100), PARTITION p4 VALUES LESS THAN (9000));
INSERT INTO parts SELECT seq, 0, 'first' FROM seq_1_to_20;
----
equal

-- loose: created, without a key
CREATE TABLE loose (id INT, touched INT, note VARCHAR(20));
INSERT INTO loose SELECT seq MOD 7 + 1, 0, IF(seq MOD 2, 'first', NULL) FROM seq_1_to_60;
----
equal

-- rekeyed: created
CREATE TABLE rekeyed (id INT PRIMARY KEY, touched INT, part INT NOT NULL DEFAULT 1, note VARCHAR(20));
INSERT INTO rekeyed SELECT seq, 0, seq MOD 3, 'first' FROM seq_1_to_20;
----
equal

-- several: created
CREATE TABLE several (id INT PRIMARY KEY, touched INT, n INT DEFAULT 1, note VARCHAR(20));
INSERT INTO several SELECT seq, 0, seq, 'first' FROM seq_1_to_20;
----
equal

-- added: a column without a default, and one at a place of its own
ALTER TABLE added ADD COLUMN plain INT, ADD COLUMN second INT AFTER id;
UPDATE added SET plain = 1, second = 2 WHERE id < 5;
----
equal

-- dropped: a column is dropped and added with another type in one statement
ALTER TABLE dropped DROP note, ADD note INT;
UPDATE dropped SET note = 7 WHERE id = 3;
----
stopped: type-changed
lake: ALTER TABLE shop.dropped RENAME COLUMN note TO note_before;
equal

-- typed: types that hold all earlier values
ALTER TABLE typed MODIFY n BIGINT, MODIFY word VARCHAR(30), MODIFY price DECIMAL(12, 2);
UPDATE typed SET n = 3000000000, word = 'a word that is longer' WHERE id = 3;
----
equal

-- latin: the character set is converted
ALTER TABLE latin CONVERT TO CHARACTER SET utf8mb4;
UPDATE latin SET word = '日本' WHERE id = 3;
----
equal

-- keyed: the key gets a wider type
ALTER TABLE keyed MODIFY id BIGINT;
----
equal

-- whole: the table is renamed, changed and renamed back
RENAME TABLE whole TO elsewhere;
UPDATE elsewhere SET note = 'elsewhere' WHERE id < 5;
DELETE FROM elsewhere WHERE id = 20;
RENAME TABLE elsewhere TO whole;
----
equal

-- parts: a partition is dropped, and one is added
ALTER TABLE parts ADD PARTITION (PARTITION p5 VALUES LESS THAN (9100));
ALTER TABLE parts WAIT 5 DROP PARTITION p0;
----
equal

-- loose: equal rows come, go and change
INSERT INTO loose SELECT * FROM loose WHERE id < 4;
DELETE FROM loose WHERE id = 5 LIMIT 3;
UPDATE loose SET note = 'second' WHERE id = 6 LIMIT 2;
----
equal

-- added: columns with a constant, a default per row, and none at all
ALTER TABLE added NOWAIT ADD COLUMN five INT DEFAULT 5, ADD COLUMN ident VARCHAR(36) DEFAULT (uuid()), ADD COLUMN none INT NOT NULL;
ALTER TABLE added ALTER COLUMN five SET DEFAULT 7, ALTER COLUMN none SET DEFAULT 8;
----
equal

-- dropped: a column is dropped, and added again between two changes
ALTER TABLE dropped DROP COLUMN n;
UPDATE dropped SET a = a + 1 WHERE id = 4;
ALTER TABLE dropped ADD COLUMN n INT;
UPDATE dropped SET a = a + 1 WHERE id = 5;
----
equal

-- typed: a time gets digits, and a number loses its sign
ALTER TABLE typed MODIFY at DATETIME(6), MODIFY u INT UNSIGNED;
UPDATE typed SET at = '2026-11-26 10:00:00.123456', u = 4000000000 WHERE id = 4;
----
equal

-- latin: a column alone is converted
ALTER TABLE latin MODIFY word VARCHAR(20) CHARACTER SET utf8mb3;
----
equal

-- keyed: the key gets another column
ALTER TABLE keyed DROP PRIMARY KEY, ADD PRIMARY KEY (id, part);
INSERT INTO keyed VALUES (1, 0, 7);
----
stopped: key-changed
lake: DROP TABLE shop.keyed CASCADE;
lake: CREATE TABLE shop.keyed FROM SOURCE shop (TABLE 'shop.keyed') ENVELOPE DEBEZIUM;
equal

-- whole: the table is dropped and created again
DROP TABLE whole;
CREATE TABLE whole (id INT PRIMARY KEY, touched INT, note VARCHAR(20));
INSERT INTO whole SELECT seq, 0, 'second' FROM seq_5_to_10;
----
equal

-- parts: a partition is truncated
ALTER TABLE parts TRUNCATE PARTITION p1;
----
equal

-- loose: a column without a default is added, and one is dropped
ALTER TABLE loose ADD COLUMN plain INT, DROP COLUMN note;
UPDATE loose SET plain = 1 WHERE id = 2 LIMIT 3;
DELETE FROM loose WHERE id = 3 LIMIT 2;
----
equal

-- added: generated columns, stored and virtual
ALTER TABLE added ADD COLUMN twice INT AS (id * 2) STORED, ADD COLUMN thrice INT AS (id * 3) VIRTUAL;
----
equal

-- dropped: a column gets another name
ALTER TABLE dropped RENAME COLUMN a TO c;
----
equal

-- typed: an enum is extended and reordered
ALTER TABLE typed MODIFY kind ENUM('a', 'b', 'c');
UPDATE typed SET kind = 'c' WHERE id = 5;
ALTER TABLE typed MODIFY kind ENUM('c', 'b', 'a');
UPDATE typed SET kind = 'a' WHERE id = 6;
----
equal

-- latin: an index, a check and a comment
CREATE INDEX by_word ON latin (word);
ALTER TABLE latin ADD CONSTRAINT named CHECK (id > 0), COMMENT = 'DROP PARTITION', ENGINE = InnoDB;
OPTIMIZE TABLE latin;
----
equal

-- whole: the table is truncated
TRUNCATE TABLE whole;
INSERT INTO whole SELECT seq, 0, 'third' FROM seq_1_to_10;
----
equal

-- parts: a partition changes places with a table
CREATE TABLE other LIKE parts;
ALTER TABLE other REMOVE PARTITIONING;
INSERT INTO other VALUES (12, 0, 'other'), (14, 0, 'other');
ALTER TABLE parts EXCHANGE PARTITION p2 WITH TABLE other;
----
equal

-- loose: the table is truncated
TRUNCATE TABLE loose;
INSERT INTO loose SELECT seq MOD 3 + 1, 0, NULL FROM seq_1_to_10;
----
equal

-- added: an invisible column, first in the row
ALTER TABLE added ADD COLUMN hidden INT INVISIBLE DEFAULT 4 FIRST, ALGORITHM = COPY;
UPDATE added SET hidden = 9 WHERE id = 2;
----
equal

-- dropped: a column gets another name and type
ALTER TABLE dropped CHANGE COLUMN b d BIGINT;
----
equal

-- typed: an enum's value gets another name, and a set another order
SET STATEMENT sql_mode = '' FOR ALTER TABLE typed MODIFY kind ENUM('c', 'bee', 'a'), MODIFY flags SET('y', 'x', 'z');
UPDATE typed SET kind = 'bee', flags = 'z,y' WHERE id = 7;
----
equal

-- latin: nothing is null any more
ALTER TABLE latin ADD COLUMN maybe INT;
SET STATEMENT sql_mode = '' FOR ALTER TABLE latin MODIFY maybe INT NOT NULL DEFAULT 3;
----
equal

-- whole: the table is replaced by one with other columns
CREATE OR REPLACE TABLE whole (id INT PRIMARY KEY, extra INT, touched INT, note VARCHAR(20));
INSERT INTO whole SELECT seq, 1, 2, 'fourth' FROM seq_1_to_8;
----
equal

-- whole: the table is renamed
RENAME TABLE whole TO elsewhere;
DELETE FROM elsewhere WHERE id < 8;
----
stopped: table-gone
database: RENAME TABLE elsewhere TO whole;
equal

-- parts: partitions are rearranged
ALTER TABLE parts REORGANIZE PARTITION p2 INTO (PARTITION p2a VALUES LESS THAN (12), PARTITION p2b VALUES LESS THAN (15));
ALTER TABLE parts REMOVE PARTITIONING;
----
equal

-- added: a column is added at once, and one is dropped
ALTER TABLE added ADD COLUMN instant INT DEFAULT 6, ALGORITHM = INSTANT;
ALTER TABLE added DROP COLUMN plain;
----
equal

-- dropped: two columns swap their names
ALTER TABLE dropped RENAME COLUMN c TO n, RENAME COLUMN n TO c;
----
equal

-- typed: a number becomes a text
ALTER TABLE typed MODIFY n VARCHAR(30);
----
stopped: type-changed
lake: ALTER TABLE shop.typed RENAME COLUMN n TO n_before;
equal

-- latin: a transaction with a part that is rolled back
BEGIN;
UPDATE latin SET touched = 1 WHERE id = 1;
SAVEPOINT before_the_rest;
UPDATE latin SET touched = 2 WHERE id < 9;
ROLLBACK TO before_the_rest;
UPDATE latin, whole SET latin.touched = 3, whole.touched = 3 WHERE latin.id = whole.id AND whole.id < 4;
COMMIT;
LOCK TABLES latin WRITE;
UPDATE latin SET touched = 4 WHERE id = 6;
UNLOCK TABLES;
----
equal

-- typed: a decimal gets more digits after its point
ALTER TABLE typed MODIFY price DECIMAL(12, 3);
UPDATE typed SET price = 1.125 WHERE id = 8;
----
stopped: type-changed
lake: ALTER TABLE shop.typed RENAME COLUMN price TO price_before;
equal

-- rekeyed: the primary key is dropped and added again
LOCK TABLES rekeyed WRITE;
ALTER TABLE rekeyed DROP PRIMARY KEY;
ALTER TABLE rekeyed ADD PRIMARY KEY (id);
UNLOCK TABLES;
UPDATE rekeyed SET note = 'second' WHERE id = 1;
----
equal

-- rekeyed: the primary key is dropped, rows change, and it is added again
LOCK TABLES rekeyed WRITE;
ALTER TABLE rekeyed DROP PRIMARY KEY;
UPDATE rekeyed SET note = 'without a key' WHERE id = 2;
ALTER TABLE rekeyed ADD PRIMARY KEY (id);
UNLOCK TABLES;
UPDATE rekeyed SET note = 'with a key again' WHERE id = 3;
----
stopped: key-changed
lake: DROP TABLE shop.rekeyed CASCADE;
lake: CREATE TABLE shop.rekeyed FROM SOURCE shop (TABLE 'shop.rekeyed') ENVELOPE DEBEZIUM;
equal

-- rekeyed: the key gets a second column
ALTER TABLE rekeyed DROP PRIMARY KEY, ADD PRIMARY KEY (id, part);
UPDATE rekeyed SET note = 'a key of two columns' WHERE id = 4;
----
stopped: key-changed
lake: DROP TABLE shop.rekeyed CASCADE;
lake: CREATE TABLE shop.rekeyed FROM SOURCE shop (TABLE 'shop.rekeyed') ENVELOPE DEBEZIUM;
equal

-- rekeyed: the second column of the key is dropped
ALTER TABLE rekeyed DROP PRIMARY KEY, DROP COLUMN part, ADD PRIMARY KEY (id);
UPDATE rekeyed SET note = 'a key of one column' WHERE id = 5;
----
stopped: key-changed
lake: DROP TABLE shop.rekeyed CASCADE;
lake: CREATE TABLE shop.rekeyed FROM SOURCE shop (TABLE 'shop.rekeyed') ENVELOPE DEBEZIUM;
equal

-- rekeyed: the primary key is dropped for good
ALTER TABLE rekeyed DROP PRIMARY KEY;
INSERT INTO rekeyed SELECT * FROM rekeyed WHERE id < 4;
----
stopped: key-changed
lake: DROP TABLE shop.rekeyed CASCADE;
lake: CREATE TABLE shop.rekeyed FROM SOURCE shop (TABLE 'shop.rekeyed') ENVELOPE DEBEZIUM;
lake: ALTER SOURCE shop RESNAPSHOT;
equal

-- several: a default is changed, dropped, and set for new rows
ALTER TABLE several ALTER COLUMN n SET DEFAULT 7;
INSERT INTO several (id, touched, note) VALUES (21, 0, 'default 7');
ALTER TABLE several MODIFY n INT DEFAULT 8, ALTER COLUMN note SET DEFAULT 'default';
INSERT INTO several (id, touched) VALUES (22, 0);
ALTER TABLE several ALTER COLUMN n DROP DEFAULT;
INSERT INTO several (id, touched, n) VALUES (23, 0, NULL);
----
equal

-- several: columns come, change and go, and rows change between the statements
ALTER TABLE several ADD COLUMN a INT DEFAULT 5;
UPDATE several SET a = 6 WHERE id = 1;
ALTER TABLE several ADD COLUMN b VARCHAR(10) AFTER id;
UPDATE several SET b = 'b', touched = 1 WHERE id < 4;
ALTER TABLE several MODIFY a BIGINT;
UPDATE several SET a = 3000000000 WHERE id = 2;
ALTER TABLE several DROP COLUMN note, ADD COLUMN last INT NOT NULL DEFAULT 9;
DELETE FROM several WHERE id = 5;
ALTER TABLE several CHANGE COLUMN b c VARCHAR(20) FIRST;
INSERT INTO several (id, touched, c) VALUES (24, 0, 'the last row');
----
equal

-- several: the same in one statement
ALTER TABLE several ADD COLUMN d INT DEFAULT 1, MODIFY c VARCHAR(30), DROP COLUMN n, RENAME COLUMN a TO e, ADD INDEX (d);
UPDATE several SET e = 1, d = 2 WHERE id = 3;
----
equal

-- back: created
CREATE TABLE back (id INT PRIMARY KEY, touched INT, a INT, b INT, c VARCHAR(20));
INSERT INTO back SELECT seq, 0, seq, -seq, CONCAT('c', seq) FROM seq_1_to_20;
----
equal

-- back: two columns swap their names, rows change, and they swap them back
ALTER TABLE back RENAME COLUMN a TO b, RENAME COLUMN b TO a;
UPDATE back SET touched = 1 WHERE id < 5;
ALTER TABLE back RENAME COLUMN a TO b, RENAME COLUMN b TO a;
----
equal

-- back: two columns swap their names by a third one, and swap them back
ALTER TABLE back RENAME COLUMN a TO x;
UPDATE back SET touched = 2 WHERE id < 3;
ALTER TABLE back RENAME COLUMN b TO a;
UPDATE back SET touched = 2 WHERE id = 3;
ALTER TABLE back RENAME COLUMN x TO b;
UPDATE back SET touched = 2 WHERE id = 4;
ALTER TABLE back RENAME COLUMN a TO x;
ALTER TABLE back RENAME COLUMN b TO a;
ALTER TABLE back RENAME COLUMN x TO b;
----
equal

-- back: a column has another name while rows change
ALTER TABLE back CHANGE COLUMN c other VARCHAR(20);
UPDATE back SET touched = 3, other = 'other' WHERE id < 5;
ALTER TABLE back CHANGE COLUMN other c VARCHAR(20);
----
equal

-- back: two columns swap their names by a third one
ALTER TABLE back RENAME COLUMN a TO x;
ALTER TABLE back RENAME COLUMN b TO a;
UPDATE back SET touched = 4 WHERE id = 6;
ALTER TABLE back RENAME COLUMN x TO b;
----
equal

-- back: they swap them back
ALTER TABLE back RENAME COLUMN a TO b, RENAME COLUMN b TO a;
UPDATE back SET touched = 5 WHERE id = 7;
----
equal

-- several: the table becomes system-versioned for a while
ALTER TABLE several ADD SYSTEM VERSIONING;
UPDATE several SET touched = 9 WHERE id = 1;
----
stopped: table-left-out
database: ALTER TABLE several DROP SYSTEM VERSIONING;
equal
