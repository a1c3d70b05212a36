package link

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/netip"
	"slices"
)

// WriteAddrs prints the addresses of DefaultName, sorted, one command of
// ip-address(8) a line, so that the output can be replayed by a shell.
func WriteAddrs(w io.Writer, addrs map[netip.Addr]struct{}) error {
	return WriteAddrsOf(w, DefaultName, maps.Keys(addrs))
}

// WriteAddrsOf does what WriteAddrs does for a link of another name.
func WriteAddrsOf(w io.Writer, name string, addrs iter.Seq[netip.Addr]) error {
	out := bufio.NewWriter(w)
	for _, a := range slices.SortedFunc(addrs, netip.Addr.Compare) {
		// Duplicate address detection would leave the address unusable on a link
		// that is never up.
		suffix := ""
		if a.Is6() {
			suffix = " nodad"
		}
		fmt.Fprintf(out, "ip addr add %s dev %s%s\n", prefixOf(a), name, suffix)
	}
	return out.Flush()
}
