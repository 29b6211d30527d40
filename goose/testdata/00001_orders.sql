-- +goose Up
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT NOT NULL);
INSERT INTO orders SELECT id, id % 100 FROM generate_series(1, 10000) AS id;

-- +goose Down
DROP TABLE orders;
