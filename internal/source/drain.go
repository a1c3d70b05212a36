package source

import (
	"strings"
	"time"
)

// annotationDrain says how long connections of an endpoint go on that has gone, a Go
// duration within the bounds of --drain.
const (
	annotationDrain = "kube-ipvs.io/drain"
	maxDrain        = time.Hour
)

// drain reads the annotation; nil leaves it to the node. One that is there and says
// nothing is a mistake like any other: 0s is how to say that nothing goes on.
func (p *problems) drain(annotations map[string]string) *time.Duration {
	text, said := annotations[annotationDrain]
	if !said {
		return nil
	}
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || d < 0 || d > maxDrain {
		p.add("metadata.annotations["+annotationDrain+"]", "%s is not a duration from 0s to 1h such as 90s or 5m: what the node is set to (--drain) holds", quote(text))
		return nil
	}
	return &d
}
