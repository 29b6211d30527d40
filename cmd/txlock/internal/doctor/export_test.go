package doctor

// These take the bounds that Postgres and MySQL have as constants: no test waits for minutes.
var (
	PostgresWith = postgresWith
	MySQLWith    = mysqlWith
)
