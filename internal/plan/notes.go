package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// notes gathers the reasons of one plan. A Service that is served completely
// has none and pays nothing for them.
type notes []model.Note

func (n *notes) addf(code model.NoteCode, format string, args ...any) {
	*n = append(*n, model.Note{Code: code, Text: fmt.Sprintf(format, args...)})
}

// add takes sentences of one kind.
func (n *notes) add(code model.NoteCode, texts ...string) {
	for _, text := range texts {
		*n = append(*n, model.Note{Code: code, Text: text})
	}
}

// sorted orders the notes and drops repetitions: one cause shows at every port.
func (n notes) sorted() []model.Note {
	slices.SortFunc(n, model.Note.Compare)
	return slices.Compact(n)
}

// notePlan passes on what the sources could not use.
func (j *compilation) notePlan() {
	j.notes.add(model.BadObject, j.svc.Problems...)
	for i := range j.slices {
		s := &j.slices[i]
		if s.Service != j.id {
			continue
		}
		for _, problem := range s.Problems {
			j.notes.addf(model.BadObject, "EndpointSlice %s: %s", s.ID, problem)
		}
	}
}

// noteEmpty notes, once for a port, family and policy, why frontends of a group
// have no backends; n is the number of its candidates.
func (j *compilation) noteEmpty(g *group, f model.Family, port model.ServicePort, n int) {
	if !g.somewhere {
		j.noteNoEndpoint(f, port, n)
		return
	}
	if len(g.local) > 0 {
		return
	}
	if j.svc.InternalLocal {
		j.notes.addf(model.NoLocalEndpoints, "%s: internalTrafficPolicy is Local and no endpoint on this node is ready: no backends", j.clusterKey(f, port))
	}
	if j.svc.ExternalLocal && g.external {
		j.notes.addf(model.NoLocalEndpoints, "%s port %d/%s from outside: externalTrafficPolicy is Local and no endpoint on this node is ready: no backends",
			f, port.Port, port.Protocol)
	}
}

// noteNoEndpoint notes why there is no endpoint that any policy could take.
func (j *compilation) noteNoEndpoint(f model.Family, port model.ServicePort, n int) {
	key, found := j.clusterKey(f, port), j.survey(f)
	switch {
	case n > 0:
		j.notes.addf(model.NoReadyEndpoints, "%s: none of its endpoints is ready (of %d): no backends", key, n)
	case found.endpoints && len(j.targetsOf(f, port)) == 0:
		j.notes.addf(model.NoMatchingPort, "%s: no EndpointSlice has a port named %q over %s: no backends", key, port.Name, port.Protocol)
	case found.slices || len(found.others) == 0:
		j.notes.addf(model.NoEndpoints, "%s: no endpoints: no backends", key)
	default:
		j.notes.addf(model.OtherFamilyOnly, "%s address %s has only %s slices: no backends",
			f, key.Addr, strings.Join(found.others, " and "))
	}
}

// clusterKey is the key of a port at the cluster IP: its name in the notes.
func (j *compilation) clusterKey(f model.Family, port model.ServicePort) model.FrontendKey {
	return model.FrontendKey{Addr: j.family(f).clusterIP, Port: port.Port, Protocol: port.Protocol}
}

// survey counts the slices, for notes about missing backends.
type survey struct {
	// slices and endpoints: of the family that was asked for.
	slices, endpoints bool
	// others are the address types of the remaining slices, sorted.
	others []string
}

// survey looks once at each family.
func (j *compilation) survey(family model.Family) survey {
	if known := j.surveyed[familyIndex(family)]; known != nil {
		return *known
	}
	var found survey
	for i := range j.slices {
		s := &j.slices[i]
		switch {
		case s.Service != j.id:
		case s.Family == family:
			found.slices = true
			found.endpoints = found.endpoints || len(s.Endpoints) > 0
		default:
			found.others = append(found.others, addressType(s.Family))
		}
	}
	slices.Sort(found.others)
	found.others = slices.Compact(found.others)
	j.surveyed[familyIndex(family)] = &found
	return found
}

// addressType names a slice's family as the API does.
func addressType(f model.Family) string {
	if f == 0 {
		return "FQDN"
	}
	return f.String()
}
