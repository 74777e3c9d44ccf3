"""The pages of `fedrel studio`: a server that shows what runs do while they do it. It only reads, but for notes."""
