package source

import (
	"fmt"
	"strconv"
)

// maxProblems bounds the problems that are kept for one object: a slice holds up to 1000 endpoints,
// and a reader needs only the first few.
const maxProblems = 16

// maxQuoted bounds how much of a bad value is repeated in its message.
const maxQuoted = 64

// problems collects what could not be used of one object.
type problems struct {
	list []string
	more int
}

// add notes one field; args are formatted into the reason.
func (p *problems) add(field, reason string, args ...any) {
	if len(p.list) == maxProblems {
		p.more++
		return
	}
	p.list = append(p.list, field+": "+fmt.Sprintf(reason, args...))
}

// done returns the problems in the order found, nil when there are none.
func (p *problems) done() []string {
	if p.more > 0 {
		p.list = append(p.list, fmt.Sprintf("and %d more", p.more))
	}
	return p.list
}

// at prints list[i], the path of one entry.
func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// quote prints a value from an object: escaped, and cut when it is long.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:maxQuoted]) + "..."
}
