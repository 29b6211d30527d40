-- name: Stock :one
SELECT stock FROM goods WHERE sku = $1;

-- name: SetStock :exec
UPDATE goods SET stock = $2 WHERE sku = $1;
