"""`regnexe sessions`: the sessions in a database, to look at."""
