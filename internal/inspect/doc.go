// Package inspect shows what the running agent knows: an HTTP server on a unix
// socket that only root can open, a client for it, and tables for people.
//
// Whoever holds the socket is the agent of this run directory, so a second one
// notices that it is second. Nothing here is a copy: each answer is read by the
// loop between two cycles.
package inspect
