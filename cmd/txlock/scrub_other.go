//go:build !unix

package main

// inArgv: elsewhere the arguments are copied.
const inArgv = false
