-- The shop as its PostgreSQL database has it. An order's total is the sum of its items: a reader can check that.
CREATE TYPE order_status AS ENUM ('placed', 'paid', 'shipped', 'delivered', 'cancelled');

CREATE TABLE customers (
    id            bigint PRIMARY KEY,
    account       uuid NOT NULL,
    name          text NOT NULL,
    email         text,
    born          date,
    newsletter    boolean NOT NULL,
    tags          text[] NOT NULL,
    preferences   jsonb,
    balance       numeric(8, 2) NOT NULL,
    registered_at timestamp with time zone NOT NULL
);

CREATE TABLE orders (
    id          bigint PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers ON UPDATE CASCADE,
    status      order_status NOT NULL,
    total       numeric(12, 2) NOT NULL,
    note        jsonb,
    deliver_on  date,
    letter      text,
    placed_at   timestamp NOT NULL,
    changed_at  timestamp with time zone NOT NULL
);

CREATE TABLE order_items (
    order_id bigint REFERENCES orders ON DELETE CASCADE,
    line     smallint,
    sku      text NOT NULL,
    quantity integer NOT NULL,
    price    numeric(10, 2) NOT NULL,
    gift     boolean NOT NULL,
    PRIMARY KEY (order_id, line)
);
