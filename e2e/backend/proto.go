package backend

import (
	"fmt"
	"slices"
	"strings"
)

// Proto names how a backend is asked.
type Proto string

// The protocols. HTTP is a request over TCP.
const (
	HTTP Proto = "http"
	TCP  Proto = "tcp"
	UDP  Proto = "udp"
	SCTP Proto = "sctp"
)

// Protos lists them all.
func Protos() []Proto { return []Proto{HTTP, TCP, UDP, SCTP} }

// ParseProto accepts a name in any case, as Service ports spell it.
func ParseProto(text string) (Proto, error) {
	p := Proto(strings.ToLower(text))
	if !slices.Contains(Protos(), p) {
		return "", fmt.Errorf("protocol %q: want one of %v", text, Protos())
	}
	return p, nil
}
