package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
)

// arrow is a pair of files of which the first calls the second.
type arrow struct{ from, to string }

func (a arrow) String() string { return a.from + " -> " + a.to }

// callsBetween counts the calls from file to file of one package. The type checker finds which
// function or method a call names. It knows the types of this package alone. A call through another
// package, or of a method of an interface, does not count.
func callsBetween(files *token.FileSet, sources []*source) map[arrow]int {
	info, declared := resolve(files, sources)
	out := map[arrow]int{}
	for _, s := range sources {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f := declared[callee(info, call)]; f != nil {
				if to := fileOf(files, f); to != s.name {
					out[arrow{s.name, to}]++
				}
			}
			return true
		})
	}
	return out
}

// resolve type-checks one package by itself, and returns the functions and methods that it declares.
func resolve(files *token.FileSet, sources []*source) (*types.Info, map[types.Object]*ast.FuncDecl) {
	parsed := make([]*ast.File, len(sources))
	for i, s := range sources {
		parsed[i] = s.file
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: unknown{}, Error: func(error) {}}
	_, _ = conf.Check("measured", files, parsed, info) // what is imported is unknown
	declared := map[types.Object]*ast.FuncDecl{}
	for _, file := range parsed {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && info.Defs[f.Name] != nil {
				declared[info.Defs[f.Name]] = f
			}
		}
	}
	return info, declared
}

// unknown imports every package as an empty one.
type unknown struct{}

func (unknown) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// callee returns the function or method that a call names, nil for any other call.
func callee(info *types.Info, call *ast.CallExpr) types.Object {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	var name *ast.Ident
	switch f := fun.(type) {
	case *ast.Ident:
		name = f
	case *ast.SelectorExpr:
		name = f.Sel
	default:
		return nil
	}
	if f, ok := info.Uses[name].(*types.Func); ok {
		return f.Origin()
	}
	return nil
}

func fileOf(files *token.FileSet, f *ast.FuncDecl) string {
	return filepath.Base(files.Position(f.Pos()).Filename)
}
