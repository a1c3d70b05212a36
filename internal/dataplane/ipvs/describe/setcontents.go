package describe

import (
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// wantedSets are the desired sets with their desired entries.
func (d *Describer) wantedSets() []ipset.Contents {
	byName := map[string]*ipset.Contents{}
	for name, set := range d.of.Sets.Sets.AllDesired() {
		byName[name] = &ipset.Contents{Set: set}
	}
	for k := range d.of.Sets.Members.AllDesired() {
		if c, ok := byName[k.Set]; ok {
			c.Entries = append(c.Entries, k.Entry)
		}
	}
	var out []ipset.Contents
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, *byName[name])
	}
	return out
}

// foundSets are the sets in the kernel with their entries.
func (d *Describer) foundSets() []ipset.Contents {
	byName := map[string]*ipset.Contents{}
	for name, set := range d.of.Sets.Sets.Actual() {
		if want := d.of.Sets.Set(name); want.Compatible(set) {
			set = want
		}
		byName[name] = &ipset.Contents{Set: set}
	}
	for k := range d.of.Sets.Members.Actual() {
		if c, ok := byName[k.Set]; ok {
			c.Entries = append(c.Entries, k.Entry)
		}
	}
	out := make([]ipset.Contents, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, *byName[name])
	}
	return out
}
