package cli

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

const schemas = "../../manifests/schemas"

// outputs are what has a schema: the rows of each list, or the whole of it.
var outputs = map[string]reflect.Type{
	"services": reflect.TypeFor[inspect.ServiceRow](), "frontends": reflect.TypeFor[inspect.FrontendRow](),
	"backends": reflect.TypeFor[inspect.BackendRow](), "pending": reflect.TypeFor[inspect.PendingRow](),
	"conflicts": reflect.TypeFor[inspect.ConflictRow](), "health": reflect.TypeFor[inspect.HealthRow](), "draining": reflect.TypeFor[inspect.MovingRow](),
	"kernel-servers": reflect.TypeFor[inspect.KernelServerRow](), "kernel-sets": reflect.TypeFor[inspect.KernelSetRow](),
	"kernel-entries": reflect.TypeFor[inspect.KernelEntryRow](), "kernel-rules": reflect.TypeFor[inspect.KernelRuleRow](),
	"kernel-addresses": reflect.TypeFor[inspect.KernelAddressRow](), "status": reflect.TypeFor[agent.Status](),
}

// reports have a schema, too, and tests of their own that compare what they print with it.
var reports = []string{"audit", "check", "cluster", "diff", "explain", "top", "trace", "version"}

// conforms validates an output and returns how many items it has.
func conforms(t *testing.T, name, output string) (items int) {
	t.Helper()
	fits(t, name, output)
	var list struct{ Items []any }
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		t.Error(err)
	}
	return len(list.Items)
}

func TestOutputsConformToTheirSchemas(t *testing.T) {
	s := openShop(t)
	for _, name := range []string{"services", "frontends", "backends", "pending", "conflicts", "draining", "health"} {
		if conforms(t, name, s.show(t, name, "-o", "json")) == 0 {
			t.Errorf("%s: no items, so nothing was checked", name)
		}
	}
	status := s.show(t, "status", "-o", "json")
	conforms(t, "status", status)
	if want := "\"version\": \"v0.1.0\",\n  \"kernel\": \"6.12.0\",\n  \"scheduler\": \"rr\""; !strings.Contains(status, want) {
		t.Errorf("status lacks %s:\n%s", want, status)
	}
	k := s.kernel(io.Discard, s.config.Socket())
	for name, output := range map[string]string{
		"kernel-servers":   listed(t, query{}, k.servers),
		"kernel-sets":      listed(t, query{}, k.sets),
		"kernel-entries":   listed(t, query{named: "KUBE-CLUSTER-IP"}, k.entries),
		"kernel-rules":     listed(t, query{}, k.rules),
		"kernel-addresses": listed(t, query{}, k.addresses),
	} {
		if conforms(t, name, output) == 0 {
			t.Errorf("%s: no items, so nothing was checked", name)
		}
	}
}

// listed is a list as -o json prints it.
func listed[R any](t *testing.T, q query, read func(context.Context, query) (inspect.List[R], error)) string {
	t.Helper()
	list, err := read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := (page{out: &b}).encode("json", list); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Lists without items, and with more than was sent, conform too.
func TestListsConformAtTheirEnds(t *testing.T) {
	for name := range outputs {
		if name != "status" {
			conforms(t, name, `{"items": []}`)
		}
	}
	conforms(t, "pending", `{"items": [], "more": {"servers": 3}}`)
	conforms(t, "draining", `{"items": [], "more": {"draining": 3}}`)
	conforms(t, "status", encoded(t, agent.Status{Written: map[string]uint64{}}))
	conforms(t, "status", encoded(t, agent.Status{Written: map[string]uint64{"servers": 1}, LastError: "x", AuditTotals: agent.AuditTotals{LastAudit: &agent.AuditRecord{}}, Last: &agent.Cycle{Rows: []agent.TableRows{{Table: "servers"}}}}))
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A schema has each field that an output can have, and no other, and lists what is missing.
func TestSchemasHaveEachField(t *testing.T) {
	files, err := os.ReadDir(schemas)
	if err != nil || len(files) != len(outputs)+len(reports) {
		t.Errorf("%d schemas, error %v, want one for each of %d outputs", len(files), err, len(outputs)+len(reports))
	}
	for name, row := range outputs {
		top := parsedSchema(t, name)
		closed(t, name, top)
		of := top
		if name != "status" {
			of = dig(top, "properties", "items", "items")
		}
		compareFields(t, name, of, row)
	}
	status := parsedSchema(t, "status")
	compareFields(t, "status.tables", dig(status, "properties", "tables", "items"), reflect.TypeFor[dataplane.TableStatus]())
	compareFields(t, "status.lastAudit", dig(status, "properties", "lastAudit"), reflect.TypeFor[agent.AuditRecord]())
	compareFields(t, "status.last", dig(status, "properties", "last"), reflect.TypeFor[agent.Cycle]())
	compareFields(t, "status.last.rows", dig(status, "properties", "last", "properties", "rows", "items"), reflect.TypeFor[agent.TableRows]())
}

// parsed is a schema as it is written.
func parsedSchema(t *testing.T, name string) (top map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(schemas, name+".schema.json"))
	if err == nil {
		err = json.Unmarshal(text, &top)
	}
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// dig goes down into a schema.
func dig(v map[string]any, path ...string) map[string]any {
	for _, p := range path {
		v, _ = v[p].(map[string]any)
	}
	return v
}

// compareFields compares the properties of a schema with the fields of a type, and what it requires with those that
// are never left out.
func compareFields(t *testing.T, name string, schema map[string]any, row reflect.Type) {
	t.Helper()
	all, required := fields(row)
	if diff := cmp.Diff(all, slices.Sorted(maps.Keys(dig(schema, "properties")))); diff != "" {
		t.Errorf("%s: properties (-field +schema):\n%s", name, diff)
	}
	var requires []string
	list, _ := schema["required"].([]any)
	for _, r := range list {
		text, _ := r.(string)
		requires = append(requires, text)
	}
	slices.Sort(requires)
	if diff := cmp.Diff(required, requires); diff != "" {
		t.Errorf("%s: required (-field +schema):\n%s", name, diff)
	}
}

// fields lists the JSON names of a type, sorted.
func fields(row reflect.Type) (all, required []string) {
	for _, f := range reflect.VisibleFields(row) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue // embedded: its fields are visible too
		}
		all = append(all, name)
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	slices.Sort(all)
	slices.Sort(required)
	return all, required
}

// closed checks that no object of a schema takes what it does not name.
func closed(t *testing.T, where string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if _, has := v["properties"].(map[string]any); has && v["additionalProperties"] != false {
			t.Errorf("%s: additionalProperties is not false", where)
		}
		for key, below := range v {
			closed(t, where+"."+key, below)
		}
	case []any:
		for _, below := range v {
			closed(t, where, below)
		}
	}
}

// A property that a schema lacks is refused; otherwise the tests above would accept any output.
func TestSchemasRefuse(t *testing.T) {
	for name, output := range map[string]string{
		"conflicts": `{"items": [{"frontend": "a", "holder": "b", "loser": "c", "why": "d", "colour": "red"}]}`,
		"services":  `{"items": [{"namespace": "a"}]}`,
		"pending":   `{"items": [{"table": "a", "op": "paint", "row": "x"}]}`,
		"draining":  `{"items": [{"frontend": "a", "backend": "b", "namespace": "c", "name": "d", "state": "draining", "weight": 0, "since": "yesterday"}]}`,
	} {
		if validate(t, name, output) == nil {
			t.Errorf("%s takes %s", name, output)
		}
	}
}
