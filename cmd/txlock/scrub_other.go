//go:build !unix

package main

// inArgv is false: the strings of os.Args are copies.
const inArgv = false
