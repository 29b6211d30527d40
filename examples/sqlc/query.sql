-- name: Good :one
SELECT sku, "left" FROM goods WHERE sku = $1;

-- name: SetLeft :exec
UPDATE goods SET "left" = $2 WHERE sku = $1;

-- name: Put :exec
INSERT INTO goods (sku, "left") VALUES ($1, $2)
ON CONFLICT (sku) DO UPDATE SET "left" = excluded."left";
