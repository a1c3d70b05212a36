package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kube-ipvs/kube-ipvs/internal/explain"
)

// fits fails where a JSON text does not fit its schema in manifests/schemas.
func fits(t *testing.T, schema, text string) {
	t.Helper()
	if err := validate(t, schema, text); err != nil {
		t.Errorf("%s: %v\n%s", schema, err, text)
	}
}

func validate(t *testing.T, schema, text string) error {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	compiled, err := c.Compile(filepath.Join(schemas, schema+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return compiled.Validate(value)
}

// checkSchema fails if what -o json prints is not what the schema requires.
func checkSchema(t *testing.T, r explain.Report) {
	t.Helper()
	var b strings.Builder
	if err := printReport(&b, "json", false, r); err != nil {
		t.Fatal(err)
	}
	fits(t, "explain", b.String())
}
