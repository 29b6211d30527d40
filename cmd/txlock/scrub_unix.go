//go:build unix

package main

// inArgv says that the strings of os.Args are the memory that the system shows.
const inArgv = true
