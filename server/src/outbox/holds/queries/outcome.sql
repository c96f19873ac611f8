-- How a pair was decided, if it was: asked by a stage that has the pair's lock shared since an earlier statement.
SELECT outcome FROM holdfast.hold_outcome WHERE operation_id = $1 AND generation = $2
