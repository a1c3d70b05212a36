package nftables

import "io"

// ear is a netlink socket that hears of transactions.
type ear interface {
	// Await returns when there was a transaction, or may have been, and takes all
	// notifications that wait.
	Await() error
	// Interrupt ends an Await that waits, and all to come.
	Interrupt()
	io.Closer
}
