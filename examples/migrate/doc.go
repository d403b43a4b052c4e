// Package migrate is the code of the pages in docs/migrate: a program with another scheduler, and
// the same program with this one. It is a module of its own, so that no other package links the
// others. The pages quote its functions word for word.
package migrate
