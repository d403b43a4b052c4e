package tickslot_test

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A tick goes through these parts of timer in this order. A part may call only later parts.
var tickParts = []string{"planner", "gate", "acquirer", "runner", "ledger"}

// tickFiles maps the files of timer to their parts. A part's methods must be in its files.
var tickFiles = map[string]string{
	"planner.go": "planner", "fixeddelay.go": "planner", "replan.go": "planner",
	"gate.go": "gate", "acquire.go": "acquirer",
	"runner.go": "runner", "retry.go": "runner", "attach.go": "runner", "ledger.go": "ledger",
}

// tickFaces are the types of timer that users see. They connect the parts and may call all of them.
var tickFaces = []string{"Scheduler", "timerChange", "metrics"}

// If a part calls an earlier one, the two depend on each other, and neither can be read or locked
// on its own. The test recognizes a part by the name of the field that holds it, so every struct
// must use the part's name for that field.
//
// Fails when a part gets a field with an earlier part and calls it.
func TestATickGoesOneWay(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for path, file := range filesOf(t, "timer") {
		name := filepath.Base(path)
		seen[name] = true
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				checkPartFields(t, path, decl)
			case *ast.FuncDecl:
				recv := methodOf(decl)
				caller := slices.Index(tickParts, recv)
				if caller >= 0 && tickFiles[name] != recv {
					t.Errorf("%s: method %s of %s: put it into a file of that part, or name the file in tickFiles",
						path, decl.Name.Name, recv)
				}
				if slices.Contains(tickFaces, recv) {
					continue
				}
				ast.Inspect(decl, func(n ast.Node) bool {
					method, part := partCall(n)
					if part < 0 || caller >= 0 && part >= caller || caller < 0 && tickParts[part] == "ledger" {
						return true
					}
					t.Errorf("%s: a call to a part before its own: %s: %s.%s", path, recv, tickParts[part], method)
					return true
				})
			}
		}
	}
	for name := range tickFiles {
		if !seen[name] {
			t.Errorf("timer/%s is gone: take it out of tickFiles", name)
		}
	}
}

// tickCallbacks lists the methods of parts that other types receive as functions, in a field or as
// an argument, with the reason. Such a call needs no field with the part, so TestATickGoesOneWay
// does not see it.
var tickCallbacks = map[string]string{
	"reacquire: acquirer.reacquire": "the prober, which finds that the store is back, gets slots for runs without one",
	"why: gate.why":                 "triggers of a Control wait while nothing of their timer may start here",
	"start: Scheduler.tryTrigger":   "a trigger of a Control starts a run as Scheduler.Trigger does",
}

// A part may also be called through a function value: a field or a parameter. Methods of the ledger
// are not listed, because every type may call it.
//
// Fails when a part or another type receives a method of a part that is not listed.
func TestCallbacksOfPartsAreListed(t *testing.T) {
	t.Parallel()
	files := filesOf(t, "timer")
	methods := map[string]bool{} // such as "gate.admit"
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[methodOf(f)+"."+f.Name.Name] = true
			}
		}
	}
	given := map[string]bool{}
	for path, file := range files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			give := func(to string, value ast.Expr) {
				for _, method := range partMethods(f, value) {
					callback := to + ": " + method
					if !methods[method] || strings.HasPrefix(method, "ledger.") {
						continue
					}
					if tickCallbacks[callback] == "" {
						t.Errorf("%s: a function of a part is given away: %s", path, callback)
					}
					given[callback] = true
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for i, left := range n.Lhs {
						if field, ok := left.(*ast.SelectorExpr); ok && len(n.Lhs) == len(n.Rhs) {
							give(field.Sel.Name, n.Rhs[i])
						}
					}
				case *ast.KeyValueExpr:
					if field, ok := n.Key.(*ast.Ident); ok {
						give(field.Name, n.Value)
					}
				case *ast.CallExpr:
					for _, arg := range n.Args {
						if _, literal := arg.(*ast.FuncLit); literal {
							continue // TestATickGoesOneWay sees this call
						}
						if callee, ok := n.Fun.(*ast.SelectorExpr); ok {
							give(callee.Sel.Name, arg)
						}
					}
				}
				return true
			})
		}
	}
	for callback := range tickCallbacks {
		if !given[callback] {
			t.Errorf("nobody is given this function any more, take it out of the list: %s", callback)
		}
	}
}

// partMethods returns the methods of parts, and of the Scheduler, that a value refers to or, if it
// is a function literal in f, calls, such as "gate.admit".
func partMethods(f *ast.FuncDecl, value ast.Expr) (list []string) {
	if method, part := partCall(value); part >= 0 {
		return []string{tickParts[part] + "." + method}
	}
	literal, ok := value.(*ast.FuncLit)
	if !ok {
		return nil
	}
	ast.Inspect(literal, func(n ast.Node) bool {
		if method, part := partCall(n); part >= 0 {
			list = append(list, tickParts[part]+"."+method)
		} else if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(tickFaces, methodOf(f)) {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == f.Recv.List[0].Names[0].Name {
				list = append(list, methodOf(f)+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return list
}

// partCall returns the method and the part of a call such as x.runner.carryOut(…), or -1 if it is
// not such a call.
func partCall(n ast.Node) (method string, part int) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", -1
	}
	switch x := sel.X.(type) {
	case *ast.SelectorExpr:
		return sel.Sel.Name, slices.Index(tickParts, x.Sel.Name)
	default:
		return "", -1
	}
}

// checkPartFields checks that a field that holds a part has the part's name.
func checkPartFields(t *testing.T, path string, decl *ast.GenDecl) {
	ast.Inspect(decl, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		star, ok := field.Type.(*ast.StarExpr)
		if !ok {
			return true
		}
		id, ok := star.X.(*ast.Ident)
		if !ok || !slices.Contains(tickParts, id.Name) {
			return true
		}
		for _, name := range field.Names {
			if name.Name != id.Name {
				t.Errorf("%s: field %s of type *%s: give it the name of the part", path, name.Name, id.Name)
			}
		}
		return true
	})
}

// methodOf returns the receiver type of a method, or "" for a function.
func methodOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	return receiver(f.Recv.List[0].Type)
}

// filesOf parses the files in a folder, except tests.
func filesOf(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files[path] = parsed(t, path)
	}
	return files
}

// Code that locks two mutexes must follow their order. Few types have a mutex, and the table lists
// all of them.
//
// Fails when a type of timer gets a mutex that the table does not list, or the table gets a sixth
// row.
func TestMutexesHaveAnOrder(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "docs/architecture.md"), "\n| mutex | guards |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if rows := strings.Count(table, "\n") + 1; rows > 5 {
		t.Errorf("the order of mutexes has %d rows, at most 5: let a type take no other while its own is held", rows)
	}
	for path, file := range filesOf(t, "timer") {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range fields.Fields.List {
				sel, ok := field.Type.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "Mutex" && sel.Sel.Name != "RWMutex" {
					continue
				}
				if len(field.Names) == 0 {
					t.Errorf("%s: %s embeds a mutex: give it a name", path, spec.Name.Name)
				}
				for _, name := range field.Names {
					if mutex := "`" + spec.Name.Name + "." + name.Name + "`"; !strings.Contains(table, mutex) {
						t.Errorf("%s: the table of mutexes in docs/architecture.md does not have %s", path, mutex)
					}
				}
			}
			return true
		})
	}
}
