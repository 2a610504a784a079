"""The library: documents -> passages -> vectors -> FAISS index -> search.

It turns medical texts into an index that answers "which passages speak of this?", keeps source
and licence with every passage, and measures how well it retrieves. Read it in this order:
`documents` (files to `Document`), `passages` (`Document` to `Passage`), `embed` (text to
vectors), `incremental` (embed only what changed), `index` (the folder on disk), `search`, and
`quality` (recall, nDCG, MRR).

It leaves out everything that uses what it finds: doctors, consultations, rewards, training. It
also leaves out pipelines: nothing here knows of Prefect, MLflow or DVC. Two libraries have one
door each: sentence-transformers in `embed`, faiss in `index`.
"""
