package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// fits fails where a JSON text is not what manifests/schemas says of it.
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
