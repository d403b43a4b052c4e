// Package migrate is the code of the pages in docs/migrate: what a program looks like with another
// scheduler, and what it looks like with this one. It is a module of its own, so that nobody else
// links the others. The pages quote its functions word for word.
package migrate
