// Package inspect shows what the running agent knows: an HTTP server on a unix socket that only
// root can open, a client for it, and tables for people. Lists (lists.go) consist of the rows of
// rowtypes.go, whose format is stable. columns.go has the columns of their tables. A Filter selects
// rows before they are created, and rows are sent as they are created, for some Services between two
// passes.
//
// The socket is for questions only: the agent of a run directory is
// settled before Listen, which therefore replaces what it finds. Nothing here is
// a copy: each answer is read by the loop between two cycles.
package inspect
