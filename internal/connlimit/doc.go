// Package connlimit bounds the open connections of an HTTP server that any client can reach. The
// one too many costs the connection that has waited longest for a request its place, so that
// clients that only hold connections cannot keep a probe out. Where all are being answered,
// the newest goes.
package connlimit
