package source

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// ours is what the keys of our annotations begin with.
const ours = "kube-ipvs.io/"

// The annotations that are read, after ours. All may be on a Service, the weight also on an
// EndpointSlice and a Node.
const (
	keyScheduler      = "scheduler"
	keySchedulerFlags = "scheduler-flags"
	keyWeight         = "weight"
	keyOnePacket      = "one-packet"
	keyDrain          = "drain"
	keySkip           = "skip"
	keySlowStart      = "slow-start"
	keyMaxConnections = "max-connections"
	keyForward        = "forward"
	keyTunnel         = "tunnel"
)

// The annotations of kube-router that mean the same, read where ours is absent. Its flags
// are the bits of the kernel by number: flag-1 is the fallback and flag-2 the port.
const (
	routerScheduler = "kube-router.io/service.scheduler"
	routerFlags     = "kube-router.io/service.schedflags"
)

// Keys are the annotations that a Service may have, without our prefix, in the order of messages.
func Keys() []string {
	return []string{keyScheduler, keySchedulerFlags, keyWeight, keyOnePacket, keyDrain, keySkip, keySlowStart, keyMaxConnections, keyForward, keyTunnel}
}

// The bounds of durations. A drain may be none at all; a slow start shorter than a second
// would be over with its first step.
const (
	maxDrain     = time.Hour
	minSlowStart = time.Second
	maxSlowStart = time.Hour
)

// annotations are those of one object, with what is wrong with them.
type annotations struct {
	problems
	of map[string]string
}

// has reports whether the object has any of our annotations.
func (a *annotations) has() bool {
	for key := range a.of {
		if strings.HasPrefix(key, ours) || key == routerScheduler || key == routerFlags {
			return true
		}
	}
	return false
}

// bad notes why an annotation is not followed, and what holds instead.
func (a *annotations) bad(key, reason string, args ...any) {
	a.add("metadata.annotations["+printable.String(key)+"]", reason, args...)
}

// text is the value of one of ours, without blanks around it.
func (a *annotations) text(key string) (string, bool) {
	text, said := a.of[ours+key]
	return strings.TrimSpace(text), said
}

// policy reads those of a Service; nil where none could be read.
func (a *annotations) policy() *model.Policy {
	if !a.has() {
		return nil
	}
	p := model.Policy{
		Scheduler: a.scheduler(), Weight: a.weight("weights from other sources are used"),
		OnePacket: a.truth(keyOnePacket), Skip: a.truth(keySkip),
		Drain: a.drain(), SlowStart: a.slowStart(), Limit: a.limit(), Forward: a.forward(), GUE: a.gue(),
	}
	a.strange()
	if p.Equal(&model.Policy{}) {
		return nil
	}
	return &p
}

// onlyWeight reads those of an object that may have a weight and nothing else.
func (a *annotations) onlyWeight(kind, holds string) *uint16 {
	if !a.has() {
		return nil
	}
	w := a.weight(holds)
	for _, key := range Keys() {
		if _, said := a.of[ours+key]; said && key != keyWeight {
			a.bad(ours+key, "it is for a Service, not for %s", kind)
		}
	}
	a.strange()
	return w
}

// strange reports unknown annotation keys with our prefix, sorted.
func (a *annotations) strange() {
	known := Keys()
	for _, key := range slices.Sorted(maps.Keys(a.of)) {
		if name, is := strings.CutPrefix(key, ours); is && !slices.Contains(known, name) {
			a.bad(key, "unknown annotation; those for %s are %s", strings.TrimSuffix(ours, "/"), strings.Join(known, ", "))
		}
	}
}

// scheduler reads the algorithm with its flags, ours before those of kube-router.
func (a *annotations) scheduler() scheduler.Spec {
	key, flagsKey := ours+keyScheduler, ours+keySchedulerFlags
	if _, said := a.of[key]; !said {
		if _, said := a.of[routerScheduler]; said {
			key = routerScheduler
		}
	}
	if _, said := a.of[flagsKey]; !said && key == routerScheduler {
		flagsKey = routerFlags
	}
	name, said := a.of[key]
	flags, flagged := a.of[flagsKey]
	if !said {
		if flagged && flagsKey != routerFlags {
			a.bad(flagsKey, "it needs %s, the scheduler that the flags are for", ours+keyScheduler)
		}
		return scheduler.Spec{}
	}
	if strings.TrimSpace(name) == "" {
		a.bad(key, "empty: the scheduler of the node is used; set one of %s", strings.Join(scheduler.Names(), " "))
		return scheduler.Spec{}
	}
	spec, err := scheduler.Parse(cutLong(name), "")
	if err != nil {
		a.bad(key, "%v: the scheduler of the node is used", err)
		return scheduler.Spec{}
	}
	return a.flags(spec, flagsKey, flags, flagged)
}

// noFlags is how to say that an algorithm is to have none of those that it has else.
const noFlags = "none"

// flags reads those of an algorithm; with a mistake it has those that it always has.
func (a *annotations) flags(spec scheduler.Spec, key, text string, said bool) scheduler.Spec {
	switch strings.TrimSpace(text) {
	case "":
		if said {
			a.bad(key, "empty: %s is used; set %s for no flags", spec, noFlags)
		}
		return spec
	case noFlags:
		return spec.Plain()
	}
	if key == routerFlags {
		text = strings.NewReplacer("flag-1", spec.Name()+"-fallback", "flag-2", spec.Name()+"-port").Replace(text)
	}
	flagged, err := scheduler.Parse(spec.Name(), cutLong(text))
	if err != nil {
		a.bad(key, "%v: %s is used", err, spec)
		return spec
	}
	return flagged
}

// cutLong bounds what an error may repeat of a value.
func cutLong(s string) string { return s[:min(len(s), maxQuoted)] }

// maxWeight is the largest weight that IPVS tools know (ipvsadm(8), -w).
const maxWeight = 65535

func (a *annotations) weight(holds string) *uint16 {
	text, said := a.text(keyWeight)
	if !said {
		return nil
	}
	w, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		a.bad(ours+keyWeight, "%s is not a whole number from 0 to %d: %s", quote(text), maxWeight, holds)
		return nil
	}
	weight := uint16(w)
	return &weight
}

func (a *annotations) truth(key string) bool {
	text, said := a.text(key)
	if said && text != "true" && text != "false" {
		a.bad(ours+key, "%s is not true or false, taken as false", quote(text))
	}
	return text == "true"
}

// drain reads how long connections outlive their endpoint. 0s means that no connection continues.
func (a *annotations) drain() *time.Duration {
	text, said := a.text(keyDrain)
	if !said {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxDrain {
		a.bad(ours+keyDrain, "%s is not a duration from 0s to 1h such as 90s or 5m: the setting of the node (--drain) is used", quote(text))
		return nil
	}
	return &d
}

func (a *annotations) slowStart() time.Duration {
	text, said := a.text(keySlowStart)
	if !said {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d != 0 && (d < minSlowStart || d > maxSlowStart) {
		a.bad(ours+keySlowStart, "%s is not 0s or a duration from 1s to 1h such as 30s: endpoints get their full weight at once", quote(text))
		return 0
	}
	return d
}

// limit reads "upper" or "upper,lower".
func (a *annotations) limit() model.Limit {
	text, said := a.text(keyMaxConnections)
	if !said {
		return model.Limit{}
	}
	upper, lower, two := strings.Cut(text, ",")
	u, errUpper := connections(upper)
	l, errLower := connections(lower)
	if errUpper != nil || two && errLower != nil || l > u {
		a.bad(ours+keyMaxConnections, "%s is not a number of connections, or two such as 1000,800 of which the second is not the larger: there is no limit", quote(text))
		return model.Limit{}
	}
	return model.Limit{Upper: u, Lower: l}
}

// connections reads a number of connections, 0 being none.
func connections(text string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31) // the kernel compares them with signed counters
	return uint32(n), err
}

func (a *annotations) forward() model.Forward {
	text, said := a.text(keyForward)
	if !said {
		return model.ForwardNAT
	}
	way, ok := model.ParseForward(text)
	if !ok {
		a.bad(ours+keyForward, "%s is not nat, dr or tunnel, taken as nat", quote(text))
	}
	return way
}

// gue reads what tunnels wrap packets in: the UDP port of "gue:5555", 0 for "ipip".
func (a *annotations) gue() uint16 {
	text, said := a.text(keyTunnel)
	if !said || text == "ipip" {
		return 0
	}
	number, is := strings.CutPrefix(text, "gue:")
	port, err := strconv.ParseUint(number, 10, 16)
	if !is || err != nil || port == 0 {
		a.bad(ours+keyTunnel, "%s is not ipip, or gue with a UDP port such as gue:5555, taken as ipip", quote(text))
		return 0
	}
	return uint16(port)
}
