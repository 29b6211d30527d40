// Package peer tells whether the other end of a network connection is still there. It does not use
// the connection, so others can read and write on it meanwhile.
//
// On Linux it asks the kernel. On other systems it notices nothing: Watch never calls, and Gone and
// Unread are always false.
package peer
