package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"io"
	"path/filepath"
	"strings"
)

//go:embed change.txt
var changePath string

// modePackage is the mode whose files and returns are counted, with the packages below it.
const modePackage = "internal/dataplane/ipvs"

// path measures how far a reader goes who follows one change.
type path struct {
	packages int // different ones on the whole path
	files    int // different ones of the mode
	returns  int // steps to a file of the mode that the reader had left
	broken   error
}

// write prints the measures.
func (p path) write(w io.Writer) {
	if p.broken != nil {
		fmt.Fprintf(w, "path of one change\tbroken: %v\n", p.broken)
		return
	}
	fmt.Fprintf(w, "path of one change: packages\t%d\n", p.packages)
	fmt.Fprintf(w, "path of one change: files and returns in %s\t%d, %d\n", modePackage, p.files, p.returns)
}

// beyond lists what is beyond a limit.
func (p path) beyond() []string {
	switch {
	case p.broken != nil:
		return []string{"path of one change: " + p.broken.Error()}
	case p.packages > mostPackages || p.files > mostFiles || p.returns > mostReturns:
		return []string{fmt.Sprintf("path of one change: %d packages, %d files, %d returns; %d, %d, %d at most",
			p.packages, p.files, p.returns, mostPackages, mostFiles, mostReturns)}
	}
	return nil
}

// A stop is a function on the path.
type stop struct {
	depth    int
	called   bool // by name, in the function above it
	pkg, fun string
}

// measurePath follows the listed path in the sources. A function that is gone, or that the function
// above it does not call any more, breaks the path.
func measurePath(text string, dirs map[string][]*source) path {
	stops, err := parsePath(text)
	if err != nil {
		return path{broken: err}
	}
	f := follower{packages: map[string]bool{}, left: map[string]bool{}}
	for i := range stops {
		if err := f.visit(stops[i], dirs); err != nil {
			return path{broken: err}
		}
	}
	return path{packages: len(f.packages), files: len(f.left), returns: f.returns}
}

// parsePath reads the list of stops.
func parsePath(text string) (stops []stop, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		name := strings.TrimLeft(line, " ")
		if name == "" || name[0] == '#' {
			continue
		}
		s := stop{depth: (len(line) - len(name)) / 2, called: name[0] != '~'}
		var ok bool
		if s.pkg, s.fun, ok = strings.Cut(strings.TrimPrefix(name, "~"), " "); !ok || len(stops) == 0 && s.depth > 0 || len(stops) > 0 && s.depth > stops[len(stops)-1].depth+1 {
			return nil, fmt.Errorf("cannot read %q", name)
		}
		stops = append(stops, s)
	}
	return stops, nil
}

// follower walks the path and counts.
type follower struct {
	packages map[string]bool
	left     map[string]bool // files of the mode, once they were read
	at       string          // the file of the mode that is read
	returns  int
	above    []reading // the functions that lead to the present one
}

// reading is a function that is being read.
type reading struct {
	stop
	decl *ast.FuncDecl
	file string
}

// visit goes on to a stop. All functions up to the one that calls it are read to their ends.
func (f *follower) visit(s stop, dirs map[string][]*source) error {
	decl, file := find(dirs[filepath.FromSlash(s.pkg)], s.fun)
	if decl == nil {
		return fmt.Errorf("%s has no %s", s.pkg, s.fun)
	}
	if f.above = f.above[:s.depth]; s.depth > 0 {
		caller := f.above[s.depth-1]
		f.open(caller.pkg, caller.file)
		if name := s.fun[strings.LastIndex(s.fun, ".")+1:]; s.called && !calls(caller.decl, name) {
			return fmt.Errorf("%s %s does not call %s", caller.pkg, caller.fun, s.fun)
		}
	}
	f.packages[s.pkg] = true
	f.open(s.pkg, file)
	f.above = append(f.above, reading{s, decl, file})
	return nil
}

// open turns to a file, and counts it if it is one of the mode.
func (f *follower) open(pkg, file string) {
	if file = pkg + "/" + file; file == f.at || pkg != modePackage && !strings.HasPrefix(pkg, modePackage+"/") {
		return
	}
	if f.left[file] {
		f.returns++
	}
	f.left[file], f.at = true, file
}

// find returns a function, or a method by its type and name, and its file.
func find(sources []*source, name string) (*ast.FuncDecl, string) {
	for _, s := range sources {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			full := f.Name.Name
			if f.Recv != nil {
				full = receiver(f) + "." + full
			}
			if full == name {
				return f, s.name
			}
		}
	}
	return nil, ""
}

// calls reports whether a function has a call of that name.
func calls(f *ast.FuncDecl, name string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch fun := ast.Unparen(call.Fun).(type) {
			case *ast.Ident:
				found = found || fun.Name == name
			case *ast.SelectorExpr:
				found = found || fun.Sel.Name == name
			}
		}
		return !found
	})
	return found
}
