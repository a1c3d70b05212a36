// Package inspect shows what the running agent knows: an HTTP server on a unix
// socket that only root can open, a client for it, and tables for people. Lists
// (lists.go) are made of rows (view.go) that are kept for good, chosen by a Filter
// where they are made and sent as they are made: some Services between two cycles.
//
// The socket is for questions only: who may be the agent of a run directory is
// settled before Listen, which therefore replaces what it finds. Nothing here is
// a copy: each answer is read by the loop between two cycles.
package inspect
