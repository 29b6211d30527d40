CREATE TABLE IF NOT EXISTS goods (
	sku    text PRIMARY KEY,
	"left" int NOT NULL
);
