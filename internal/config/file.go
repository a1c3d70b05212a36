package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

const proxyKind = "KubeProxyConfiguration"

// fileReader takes a file apart. Mistakes and warnings are collected, so that a
// person sees all of them at once.
type fileReader struct {
	path     string
	settings Settings
	mistakes []error
	warnings []string
	seen     map[string]int // kind to the number of its document
}

// readFile reads the documents of a file: kube-proxy's, ours, or both in either order, as YAML or
// JSON. Fields that the file does not set have their defaults.
func readFile(path string, text []byte) (*fileReader, error) {
	r := &fileReader{path: path, seen: map[string]int{}, settings: Settings{HealthzPort: healthzPort, MetricsPort: metricsPort, said: map[string]bool{}}}
	docs, err := split(text)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("the file is empty: it must hold a %s of %s, a %s of %s, or both",
			proxyKind, kubeproxy.SchemeGroupVersion, OwnKind, OwnAPIVersion)
	}
	for i, doc := range docs {
		if err := r.document(i+1, doc); err != nil {
			r.mistakes = append(r.mistakes, fmt.Errorf("--config: %w", r.at(i+1, err)))
		}
	}
	r.settings.noMode = r.seen[proxyKind] > 0 && r.settings.Proxy.Mode == ""
	r.settings.complete()
	return r, nil
}

// split finds the documents. Those that hold comments alone are none.
func split(text []byte) ([][]byte, error) {
	var docs [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, tidy(err)
		}
		switch body := bodyOf(doc); {
		case len(body) == 0:
		case body[0] == '{':
			more, err := splitJSON(body)
			if err != nil {
				return nil, err
			}
			docs = append(docs, more...)
		default:
			docs = append(docs, doc)
		}
	}
}

// splitJSON finds objects that follow each other. Text that begins with a brace has
// to be JSON: the YAML parser would stop at the closing one and not look further.
func splitJSON(body []byte) ([][]byte, error) {
	var docs [][]byte
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		var doc json.RawMessage
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, fmt.Errorf("begins with { but is not JSON: %w", err)
		}
		docs = append(docs, doc)
	}
}

// bodyOf is a document without its meaningless beginning: blank lines,
// comments and the separator, which the reader leaves there when it comes first.
func bodyOf(doc []byte) []byte {
	for {
		doc = bytes.TrimLeft(doc, " \t\r\n\ufeff")
		if !bytes.HasPrefix(doc, []byte("#")) && !bytes.HasPrefix(doc, []byte("---")) {
			return doc
		}
		_, doc, _ = bytes.Cut(doc, []byte("\n"))
	}
}

// at tells where in the file something is wrong that no field names.
func (r *fileReader) at(number int, err error) error {
	return fmt.Errorf("%s: document %d: %w", r.path, number, err)
}

// document reads one document into the settings.
func (r *fileReader) document(number int, text []byte) error {
	object, duplicates, err := toJSON(text)
	if err != nil {
		return err
	}
	list, err := r.kindOf(number, object)
	if err != nil {
		return err
	}
	d := decoder{rows: list, settings: &r.settings, raw: object}
	d.decode()
	r.mistakes = append(r.mistakes, d.mistakes...)
	if r.seen[OwnKind] == number { // our own document is strict
		r.mistakes = append(r.mistakes, d.unknown...)
		return errors.Join(duplicates...)
	}
	for _, u := range d.unknown { // kube-proxy itself only warns
		r.warnings = append(r.warnings, u.Error()+"; ignored, as by kube-proxy")
	}
	for _, twice := range duplicates {
		r.warnings = append(r.warnings, r.at(number, twice).Error()+"; the last one is used")
	}
	return nil
}

// toJSON also tells which keys are there twice. The last of them counts.
func toJSON(text []byte) (object []byte, duplicates []error, err error) {
	_, strict := yaml.YAMLToJSONStrict(text)
	if object, err = yaml.YAMLToJSON(text); err != nil {
		return nil, nil, tidy(err)
	}
	if strict != nil {
		for line := range strings.SplitSeq(tidy(strict).Error(), "; ") {
			duplicates = append(duplicates, errors.New(line))
		}
	}
	return object, duplicates, nil
}

// tidy makes one line of an error of the YAML parser.
func tidy(err error) error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	if rest, many := strings.CutPrefix(text, "unmarshal errors:\n"); many {
		lines := strings.Split(rest, "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		return errors.New(strings.Join(lines, "; "))
	}
	return errors.New("not YAML: " + text)
}

// kindOf finds the settings of a document by its kind and version.
func (r *fileReader) kindOf(number int, object []byte) ([]setting, error) {
	var t metav1.TypeMeta
	if err := json.Unmarshal(object, &t); err != nil {
		return nil, errors.New("not an object with apiVersion and kind")
	}
	var version string
	var list []setting
	switch t.Kind {
	case proxyKind:
		version, list = kubeproxy.SchemeGroupVersion.String(), proxySettings
	case OwnKind:
		version, list = OwnAPIVersion, ownSettings
	case "":
		return nil, fmt.Errorf("kind: missing; it is %s or %s", proxyKind, OwnKind)
	default:
		return nil, fmt.Errorf("kind: %q is not one of %s, %s", t.Kind, proxyKind, OwnKind)
	}
	switch {
	case t.APIVersion == "":
		return nil, fmt.Errorf("apiVersion: missing; that of %s is %s", t.Kind, version)
	case t.APIVersion != version:
		return nil, fmt.Errorf("apiVersion: %q of %s is not supported, only %s", t.APIVersion, t.Kind, version)
	case r.seen[t.Kind] > 0:
		return nil, fmt.Errorf("a second %s, document %d is one already", t.Kind, r.seen[t.Kind])
	}
	r.seen[t.Kind] = number
	return list, nil
}
