CREATE TABLE goods (
	sku   text PRIMARY KEY,
	stock int NOT NULL
);
