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
}

// pkg are the measures of one package of the product.
type pkg struct {
	path                string
	calls, upward       int
	widest, largest     string // the type with most methods, the struct with most fields
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
		s.packages = append(s.packages, measurePackage(dir, dirs[dir]))
	}
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
func measurePackage(path string, sources []*source) pkg {
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
	p.calls, p.upward = upwardCalls(callsBetween(sources))
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

// arrow is a pair of files of which the first calls the second.
type arrow struct{ from, to string }

// callsBetween counts calls from file to file. A method is found by its name, if only one file of
// the package has a method or function of that name.
func callsBetween(sources []*source) map[arrow]int {
	home := map[string]string{}
	for _, s := range sources {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if other, had := home[f.Name.Name]; had && other != s.name {
				home[f.Name.Name] = "" // ambiguous
				continue
			}
			home[f.Name.Name] = s.name
		}
	}
	out := map[arrow]int{}
	for _, s := range sources {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if to := home[called(call)]; to != "" && to != s.name {
				out[arrow{s.name, to}]++
			}
			return true
		})
	}
	return out
}

// called returns the name of the function or method that a call names.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// upwardCalls orders files so that few calls run from a file to one above it, and returns how many
// calls there are, and how many of them run upward. A file whose calls go out stands above the
// files that it calls (Eades, Lin and Smyth 1993); then files change places while that helps.
func upwardCalls(calls map[arrow]int) (all, upward int) {
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
				if moved := move(order, i, j); against(calls, moved) < against(calls, order) {
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

// against counts the calls that run upward in an order of files.
func against(calls map[arrow]int, order []string) (n int) {
	place := make(map[string]int, len(order))
	for i, name := range order {
		place[name] = i
	}
	for a, times := range calls {
		if place[a.from] > place[a.to] {
			n += times
		}
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
	fmt.Fprintln(t, "\nPACKAGE\tCALLS BETWEEN FILES\tUPWARD\tMOST METHODS\tMOST FIELDS")
	calls, upward := 0, 0
	for _, p := range s.packages {
		calls, upward = calls+p.calls, upward+p.upward
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\n", p.path, p.calls, p.upward, named(p.widest, p.methods), named(p.largest, p.fieldCount))
	}
	fmt.Fprintf(t, "all\t%d\t%d\n", calls, upward)
	return t.Flush()
}

func named(name string, n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %s", n, name)
}
