-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY orders_customer ON orders (customer);

-- +goose Down
DROP INDEX CONCURRENTLY orders_customer;
