"""What is asked: graphs, tasks, their inputs. Imports nothing of ours."""
