// Command stats measures the structure of the sources: sizes, functions, types, and calls inside a
// package that run against the order of its files.
//
//	go run ./e2e/stats [directory]
//
// With the directory of another commit it prints the measures of that commit, so that two runs
// compare before and after.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	s, err := measure(root)
	if err == nil {
		err = s.write(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stats:", err)
		os.Exit(1)
	}
}

// stats are the measures of one tree.
type stats struct {
	lines     map[string]int // by kind of source
	functions []int          // lines of each function of the product
	packages  []pkg
	change    path
}

// pkg are the measures of one package of the product.
type pkg struct {
	path                string
	calls, upward       int
	arrows              map[arrow]int // those upward
	widest, largest     string        // the type with most methods, the struct with most fields
	methods, fieldCount int
}

// product are the folders of what a user runs.
var product = []string{"cmd", "internal", "ipset", "scheduler"}

// measure reads all Go files below root.
func measure(root string) (stats, error) {
	s := stats{lines: map[string]int{}}
	dirs := map[string][]*source{}
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		kind := kindOf(rel)
		s.lines[kind] += strings.Count(string(text), "\n")
		if kind != "product" || !onLinux(path) {
			return nil
		}
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(rel)
		dirs[dir] = append(dirs[dir], &source{name: filepath.Base(rel), file: file})
		s.functions = append(s.functions, lengths(files, file)...)
		return nil
	})
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		s.packages = append(s.packages, measurePackage(files, dir, dirs[dir]))
	}
	s.change = measurePath(changePath, dirs)
	return s, err
}

// onLinux reports whether a file is part of a build for Linux. A type that another system has, too,
// would count twice.
func onLinux(path string) bool {
	c := build.Default
	c.GOOS, c.CgoEnabled = "linux", false
	ok, err := c.MatchFile(filepath.Dir(path), filepath.Base(path))
	return ok || err != nil
}

// kindOf returns the kind of a file.
func kindOf(path string) string {
	first, _, _ := strings.Cut(path, string(filepath.Separator))
	switch {
	case first == "e2e":
		return "e2e"
	case !slices.Contains(product, first):
		return "other"
	case strings.HasSuffix(path, "_test.go"):
		return "tests"
	case strings.Contains(path, "test"+string(filepath.Separator)) || strings.Contains(path, "testkit"):
		return "fakes and test helpers"
	}
	return "product"
}

// lengths returns the lines of each function of a file, without those of its signature.
func lengths(files *token.FileSet, file *ast.File) []int {
	var out []int
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			out = append(out, max(files.Position(f.Body.Rbrace).Line-files.Position(f.Body.Lbrace).Line-1, 1))
		}
	}
	return out
}

// source is one file of a package.
type source struct {
	name string
	file *ast.File
}

// measurePackage counts types and calls of a package.
func measurePackage(files *token.FileSet, path string, sources []*source) pkg {
	p := pkg{path: path}
	methods := map[string]int{}
	for _, s := range sources {
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					methods[receiver(d)]++
				}
			case *ast.GenDecl:
				p.countFields(d)
			}
		}
	}
	for _, t := range slices.Sorted(maps.Keys(methods)) {
		if methods[t] > p.methods {
			p.widest, p.methods = t, methods[t]
		}
	}
	p.calls, p.arrows = upwardCalls(callsBetween(files, sources))
	p.upward = total(p.arrows)
	return p
}

// countFields keeps the struct with most fields; an embedded one counts as one.
func (p *pkg) countFields(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		body, ok := t.Type.(*ast.StructType)
		if !ok {
			continue
		}
		n := 0
		for _, f := range body.Fields.List {
			n += max(len(f.Names), 1)
		}
		if n > p.fieldCount {
			p.largest, p.fieldCount = t.Name.Name, n
		}
	}
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// upwardCalls orders files so that few calls run from a file to one above it, and returns how many
// calls there are, and those that run upward. A file whose calls go out stands above the
// files that it calls (Eades, Lin and Smyth 1993); then files change places while that helps.
func upwardCalls(calls map[arrow]int) (all int, upward map[arrow]int) {
	balance := map[string]int{}
	for a, n := range calls {
		balance[a.from] += n
		balance[a.to] -= n
		all += n
	}
	order := slices.SortedFunc(maps.Keys(balance), func(a, b string) int {
		return cmp.Or(cmp.Compare(balance[b], balance[a]), cmp.Compare(a, b))
	})
	for better := true; better; {
		better = false
		for i := range order {
			for j := range order {
				if moved := move(order, i, j); total(against(calls, moved)) < total(against(calls, order)) {
					order, better = moved, true
				}
			}
		}
	}
	return all, against(calls, order)
}

// move returns the order with one file at another place.
func move(order []string, from, to int) []string {
	out := slices.Delete(slices.Clone(order), from, from+1)
	return slices.Insert(out, to, order[from])
}

// against returns the calls that run upward in an order of files.
func against(calls map[arrow]int, order []string) map[arrow]int {
	place := make(map[string]int, len(order))
	for i, name := range order {
		place[name] = i
	}
	out := map[arrow]int{}
	for a, times := range calls {
		if place[a.from] > place[a.to] {
			out[a] = times
		}
	}
	return out
}

func total(calls map[arrow]int) (n int) {
	for _, times := range calls {
		n += times
	}
	return n
}

// write prints the measures as a table.
func (s stats) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, kind := range slices.Sorted(maps.Keys(s.lines)) {
		fmt.Fprintf(t, "lines, %s\t%d\n", kind, s.lines[kind])
	}
	if n := len(s.functions); n > 0 {
		slices.Sort(s.functions)
		fmt.Fprintf(t, "lines of a function: median, p90, max\t%d, %d, %d\n", s.functions[n/2], s.functions[n*9/10], s.functions[n-1])
	}
	s.change.write(t)
	fmt.Fprintln(t, "\nPACKAGE\tCALLS BETWEEN FILES\tUPWARD\tMOST METHODS\tMOST FIELDS")
	calls, upward := 0, 0
	for _, p := range s.packages {
		calls, upward = calls+p.calls, upward+p.upward
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\n", p.path, p.calls, p.upward, named(p.widest, p.methods), named(p.largest, p.fieldCount))
	}
	fmt.Fprintf(t, "all\t%d\t%d\n\n", calls, upward)
	for _, b := range s.beyond() {
		fmt.Fprintln(t, "beyond the limits:", b)
	}
	return t.Flush()
}

// The limits of the product. Files of a package have an order in which at most one call in
// upwardShare runs upward.
const (
	mostMethods  = 40
	mostFields   = 20
	upwardShare  = 10
	mostPackages = 10
	mostFiles    = 5
	mostReturns  = 8
)

// beyond lists what is beyond a limit.
func (s stats) beyond() (out []string) {
	for _, p := range s.packages {
		if p.methods > mostMethods {
			out = append(out, fmt.Sprintf("%s: %s has %d methods, %d at most", p.path, p.widest, p.methods, mostMethods))
		}
		if p.fieldCount > mostFields {
			out = append(out, fmt.Sprintf("%s: %s has %d fields, %d at most", p.path, p.largest, p.fieldCount, mostFields))
		}
		if p.upward*upwardShare > p.calls {
			out = append(out, fmt.Sprintf("%s: %d of %d calls run upward, one in %d at most: %v", p.path, p.upward, p.calls, upwardShare, p.arrows))
		}
	}
	return append(out, s.change.beyond()...)
}

func named(name string, n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %s", n, name)
}
