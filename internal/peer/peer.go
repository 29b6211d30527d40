// Package peer tells whether the other end of a network connection is still there, without using
// the connection: others read and write on it meanwhile.
//
// On Linux it asks the kernel. Elsewhere nothing is noticed: Watch never calls, Gone is always
// false.
package peer
