// Command typecheck reports type errors of the Go packages in the current folder, tests included, and of what they
// import of kwok, which asks for one minor of Kubernetes and is compiled with others. It reads all else without function
// bodies and compiles nothing, so that Kubernetes takes 15 seconds instead of minutes.
//
// Arguments that begin with a hyphen are flags of go build, such as -modfile=go-1.36.mod; the others are patterns.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

const needed = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
	packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo |
	packages.NeedModule

const kwok = "sigs.k8s.io/kwok"

func main() {
	here, err := os.Getwd()
	if err != nil {
		fail(err)
	}
	configuration := &packages.Config{Mode: needed, Tests: true, ParseFile: parseIn(here)}
	var patterns []string
	for _, argument := range os.Args[1:] {
		if strings.HasPrefix(argument, "-") {
			configuration.BuildFlags = append(configuration.BuildFlags, argument)
		} else {
			patterns = append(patterns, argument)
		}
	}
	loaded, err := packages.Load(configuration, patterns...)
	if err != nil {
		fail(err)
	}
	own, wrong := 0, 0
	packages.Visit(loaded, nil, func(visited *packages.Package) {
		if visited.Module == nil || !visited.Module.Main && visited.Module.Path != kwok {
			return // without function bodies many imports are unused
		}
		own++
		for _, problem := range visited.Errors {
			wrong++
			fmt.Fprintln(os.Stderr, problem)
		}
	})
	if own == 0 || wrong > 0 {
		os.Exit(1)
	}
	fmt.Printf("%d packages have no type errors %s\n", own, strings.Join(configuration.BuildFlags, " "))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// parseIn parses files below a folder and those of kwok whole, and others without function bodies.
func parseIn(folder string) func(*token.FileSet, string, []byte) (*ast.File, error) {
	return func(files *token.FileSet, name string, source []byte) (*ast.File, error) {
		file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
		whole := strings.HasPrefix(name, folder+string(filepath.Separator)) ||
			strings.Contains(filepath.ToSlash(name), "/"+kwok+"@")
		if file == nil || whole || filepath.Ext(name) != ".go" { // a test's main function, in Go's cache
			return file, err
		}
		for _, declared := range file.Decls {
			if function, is := declared.(*ast.FuncDecl); is {
				function.Body = nil
			}
		}
		return file, err
	}
}
