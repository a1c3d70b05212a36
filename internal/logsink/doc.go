// Package logsink is where the log goes that must not hold up the program. Standard error is
// often a pipe, and its reader may stall: a write would then wait for ever, and the loop that
// logs with it. A Sink keeps lines for a while, writes them when they are read again, and
// counts those that it had to drop.
package logsink
