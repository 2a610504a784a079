"""What is recorded of a run and shown to people; the only use of MLflow. No result depends on it."""
